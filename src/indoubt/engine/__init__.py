"""Read, decide, write; hold and renew; drive flows. The only caller of ``Store.write``."""
