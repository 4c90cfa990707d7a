"""Did it happen, and may it run again? A durable, fenced ledger of intents and outcomes."""

__all__: list[str] = []
