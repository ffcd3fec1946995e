"""The dashboard's views: each turns rows of the store into plain data for its template."""
