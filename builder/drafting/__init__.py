"""The draft that goes with a build: found, matched with its target, its head chosen, and tried when it is built."""
