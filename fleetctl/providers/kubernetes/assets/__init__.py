"""Assets that runs use and that outlive them: claims of volumes, their files, sources."""
