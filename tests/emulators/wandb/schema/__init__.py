"""What may be asked by GraphQL: the types of answers, queries, mutations."""
