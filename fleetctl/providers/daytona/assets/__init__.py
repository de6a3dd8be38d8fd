"""Images, snapshots, volumes and sources at Daytona."""
