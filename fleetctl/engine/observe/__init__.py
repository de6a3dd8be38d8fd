"""What the engine learns of providers themselves, beside what it learns of runs."""
