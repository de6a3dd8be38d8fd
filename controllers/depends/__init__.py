"""Work that depends on other work: where a dependency stands, and who depends on whom. Pure."""
