"""What several modules do alike: settings and restarts of the engine, hosts with GPUs, signing keys of repositories."""
