"""Guarded effects: perform one effect under a recorded intent, and say what came of it."""
