"""One problem prepared on the GPU: inputs, references, and contestants that are run on them."""
