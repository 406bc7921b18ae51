//! How is a MySQL server kept busy, and what did each request take?
