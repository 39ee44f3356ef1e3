"""Image retrieval that trains on partly wrong labels; formats of cnnimageretrieval-pytorch."""
