"""The pages of a fleet, in a process of their own; in the frame, the looks and the guard of a host's pages."""
