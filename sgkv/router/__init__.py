"""A reference router: requests go to the engine that has most of their prompt, unless it is too busy."""
