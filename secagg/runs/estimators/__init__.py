"""Methods as estimators in the style of scikit-learn, for users who hold all sites' tables."""
