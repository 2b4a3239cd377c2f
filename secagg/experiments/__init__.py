"""Privacy-utility experiments: what a privacy setting costs, leaks and takes."""
