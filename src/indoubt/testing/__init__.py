"""The test kit for users of the library: what it takes to crash your own tools on purpose."""
