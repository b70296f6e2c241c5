package delegation

// Reason says why a chain does not hold. It goes into the log and the receipt; who
// called is told nothing but that.
type Reason string

// The reasons, in the order in which they are met.
const (
	Malformed     Reason = "malformed"    // size, count, spelling, header, claims
	UnknownRoot   Reason = "unknown_root" // the root's kid
	WrongKey      Reason = "wrong_key"    // of a link that its parent did not let sign
	BadSignature  Reason = "bad_signature"
	WrongParent   Reason = "wrong_parent" // par
	WrongIssuer   Reason = "wrong_issuer"
	WrongAudience Reason = "wrong_audience"
	Expired       Reason = "expired"
	NotYet        Reason = "not_yet"     // nbf or iat
	Widened       Reason = "widened"     // more than the link before it
	WrongAgent    Reason = "wrong_agent" // the holder is another
	WrongUser     Reason = "wrong_user"
	WrongTenant   Reason = "wrong_tenant"
	NotGranted    Reason = "not_granted"     // service and action
	Constrained   Reason = "not_constrained" // the parameters
	Revoked       Reason = "revoked"
)
