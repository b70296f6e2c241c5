package http1

// Between reports whether a request has ended and nothing of another one has come.
func (r *Requests) Between() bool { return r.at == start && r.line == nil }
