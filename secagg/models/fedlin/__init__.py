"""FedLin: hierarchical linear models (Yue, Al Kontar and Estrada Gomez 2022)."""
