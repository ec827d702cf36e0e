//! Names as Kubernetes restricts them: DNS labels and subdomains, label keys and values.
