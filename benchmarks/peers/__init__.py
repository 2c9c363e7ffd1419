"""The same nets for this project and for its peers, and the processes that run them."""
