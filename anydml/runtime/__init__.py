"""Running: threads, launches of kernels over arrays, plans of steps, and the providers of heavy operators."""
