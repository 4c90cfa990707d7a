"""The rules: pure data and functions over it. No I/O, no clock, no randomness."""
