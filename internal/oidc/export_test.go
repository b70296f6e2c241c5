package oidc

// Forget has no token be known.
func (t *Tokens) Forget() { t.verified = newVerified() }
