"""A fleet from its control host: what its file says, what its hosts tell, what a night does."""
