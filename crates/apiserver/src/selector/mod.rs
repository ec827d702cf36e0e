//! Label and field selectors: parsed once from the query string, then asked of many objects.
