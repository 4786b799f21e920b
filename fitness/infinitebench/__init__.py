"""InfiniteBench (Zhang et al., arXiv 2402.13718): twelve tasks, from its files or, six of them, generated offline."""
