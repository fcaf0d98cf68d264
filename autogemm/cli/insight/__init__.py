"""Commands that explain: ``explain``, ``profile``, ``report``, ``plot``, ``roofline``."""
