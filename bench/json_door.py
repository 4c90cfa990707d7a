"""Measures the JSON door against its budget: detach and fingerprint in 3 us + 10 us per KB.

    python bench/json_door.py

Prints one line per value: its size, the best of several timings, the budget for that size, and
their ratio. `dense` values have a token every few bytes and are the worst that JSON has to offer.
"""

import sys
import timeit

from indoubt.json_values import Json, detach

BASE_US = 3.0
PER_KB_US = 10.0

_ORDER: Json = {
    "customer_id": "cus_9s6XKzkNRiz8i3",
    "amount": 129_900,
    "currency": "eur",
    "description": "Annual plan, 12 seats, renewed by the billing agent",
    "idempotency_key": "2f1c9d7a-0b8e-4c2f-9a64-6d1f0e7b3a55",
    "capture": True,
    "metadata": {"source": "agent", "trace": "0af7651916cd43dd8448eb211c80319c"},
}
_LETTER: Json = {
    "to": ["ada@example.org", "grace@example.org"],
    "subject": "Your order has been shipped",
    "body": "Dear customer,\n\nyour parcel has left our warehouse and arrives soon.\n" * 12,
}
_CHAT: Json = {
    "model": "large",
    "temperature": 0.2,
    "messages": [
        {"role": role, "content": "Please look the order up and say when it arrives. " * 3}
        for role in ("user", "assistant") * 12
    ],
}
_LINES: Json = {
    "lines": [
        {"sku": f"A-{number}", "qty": number, "price": 12.5 * number, "taxed": False, "note": None}
        for number in range(100)
    ]
}
_NUMBERS: Json = [number * 0.37 for number in range(400)]

VALUES: dict[str, Json] = {
    "scalar": 129_900,
    "order": _ORDER,
    "letter": _LETTER,
    "chat": _CHAT,
    "dense lines": _LINES,
    "dense numbers": _NUMBERS,
}


def best_us(value: Json, *, rounds: int = 9) -> float:
    """Return the best time of one detach and fingerprint, in microseconds."""
    timer = timeit.Timer(lambda: detach(value).fingerprint())
    number, _ = timer.autorange()
    number = max(number // 4, 1)
    return min(timer.repeat(rounds, number)) / number * 1e6


def main() -> None:
    """Print the table."""
    print(f"Python {sys.version.split()[0]}")
    print(f"{'value':14} {'bytes':>7} {'us':>8} {'budget':>8} {'ratio':>6}")
    for name, value in VALUES.items():
        size = len(detach(value).text)
        spent, budget = best_us(value), BASE_US + PER_KB_US * size / 1024
        print(f"{name:14} {size:7} {spent:8.2f} {budget:8.2f} {spent / budget:6.2f}")


if __name__ == "__main__":
    main()
