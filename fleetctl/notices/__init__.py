"""Ways to tell people: a request, a mail, a program. Knows no engine and no store."""
