"""What everything else stands on: settings, errors, Postgres, SQL, servers for development."""
