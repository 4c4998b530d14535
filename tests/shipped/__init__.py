"""The shipped bundles on every release: what the tests share, and the command that does all."""
