"""What a run says that no noise changes: where its model's work goes, and what it takes."""
