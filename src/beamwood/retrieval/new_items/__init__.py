"""Items added after the fit without training, each as a mixture of known ones."""
