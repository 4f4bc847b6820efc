"""Complete training systems built of Stoker's parts, with the synthetic data that tries them."""
