"""Tables, plots and pages made from the store."""
