"""What is learned from the corpus: corrections over the analytical terms, intervals, evaluation."""
