"""What runs use and outlive: claims of volumes, their files, sources."""
