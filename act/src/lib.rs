//! Carries out plans on the API server; the only writer.
