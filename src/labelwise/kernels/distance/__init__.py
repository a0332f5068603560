"""K-means++, farthest-first traversal, k-means and kernels of distances."""
