"""What is shipped into the containers of functions, beside the guest."""
