package websocket

import (
	"encoding/binary"
	"unicode/utf8"
)

// Code says why a connection is closed (RFC 6455, section 7.4, and IANA's registry).
type Code uint16

// The codes that this package and whoever relays have a use for.
const (
	Normal        Code = 1000
	GoingAway     Code = 1001
	ProtocolError Code = 1002
	InvalidData   Code = 1007 // what is not UTF-8 in a text
	Policy        Code = 1008
	TooBig        Code = 1009
	InternalError Code = 1011
	BadGateway    Code = 1014 // what comes from behind cannot be passed on
)

// Valid reports whether c may stand in a close: of those below 3000 only the ones that
// are registered, without the three that stand for what was not sent (1005, 1006, 1015).
func (c Code) Valid() bool {
	switch {
	case c >= 1000 && c <= 1003, c >= 1007 && c <= 1014:
		return true
	}
	return c >= 3000 && c <= 4999
}

// Fault is what is wrong with what a peer sent, and the code that its connection is to
// be closed with.
type Fault struct {
	Code   Code
	Reason string // in words of this package: nothing of what was sent stands in it
}

func (f *Fault) Error() string { return f.Reason }

func fault(c Code, reason string) *Fault { return &Fault{c, reason} }

// ParseClose reads the payload of a close, unmasked. A code of 0 is that it had none.
func ParseClose(payload []byte) (Code, *Fault) {
	if len(payload) == 0 {
		return 0, nil
	}
	if len(payload) == 1 {
		return 0, fault(ProtocolError, "a close has half a code")
	}
	code := Code(binary.BigEndian.Uint16(payload))
	if !code.Valid() {
		return 0, fault(ProtocolError, "a close has a code that is not to be sent")
	}
	if !utf8.Valid(payload[2:]) {
		return 0, fault(InvalidData, "the reason of a close is not UTF-8")
	}
	return code, nil
}

// AppendClose appends a close with that code, and with as much of reason as has room in
// it. See AppendFrame for the mask.
func AppendClose(b []byte, mask *[4]byte, code Code, reason string) []byte {
	const room = ControlMost - 2
	if len(reason) > room {
		cut := room
		for !utf8.RuneStart(reason[cut]) {
			cut--
		}
		reason = reason[:cut]
	}
	payload := binary.BigEndian.AppendUint16(nil, uint16(code))
	return AppendFrame(b, Closing, mask, append(payload, reason...))
}
