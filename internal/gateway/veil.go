package gateway

import (
	"io"

	"agentgw/internal/redact"
	"agentgw/internal/websocket"
)

// veil takes the credential out of what a service says over a WebSocket, in payloads
// alone: it is looked for from each message's beginning to its end, over the borders of
// fragments, and every frame keeps its length. Where bytes at the end of a piece may
// begin the credential, they and what stands behind them wait for the next piece of the
// message; of a message that is whole nothing does.
type veil struct {
	redactor redact.Redactor
	payload  pushed
	reader   *redact.Reader // of payload
	room     [eventBuffer]byte

	fed, gone int64      // bytes of payload that came and that went on
	ends      int64      // where the frame ends whose header went on last
	waiting   []standing // for payload to go on
	said      bool       // a control frame had it
}

// standing are bytes, a header or a control frame, that stand before a place of the
// payload; ends is where the frame's payload does whose header it is, or 0.
type standing struct {
	at, ends int64
	bytes    []byte
}

// pushed reads what it was given.
type pushed struct {
	p    []byte
	last bool // an end follows
}

func (p *pushed) Read(b []byte) (int, error) {
	if len(p.p) == 0 && p.last {
		p.last = false
		return 0, io.EOF
	}
	n := copy(b, p.p)
	p.p = p.p[n:]
	return n, nil
}

func (p *pushed) Close() error { return nil }

func newVeil(r redact.Redactor) *veil {
	v := &veil{redactor: r}
	v.reader = r.NewReader(&v.payload)
	return v
}

// found reports whether the service has said it.
func (v *veil) found() bool { return v.said || v.reader.Found() }

// inFrame reports whether what went on so far ends within a frame.
func (v *veil) inFrame() bool { return v.gone < v.ends }

// add appends what may go on of a unit that follows all those before it.
func (v *veil) add(out []byte, u websocket.Unit) []byte {
	head := u.Bytes[:len(u.Bytes)-len(u.Payload)]
	if u.Opcode.Control() {
		v.waiting = append(v.waiting, standing{at: v.fed, bytes: v.control(u)})
		return v.place(out)
	}
	if u.Begins {
		v.waiting = append(v.waiting, standing{at: v.fed, ends: v.fed + u.Header.Length, bytes: append([]byte(nil), head...)})
	}
	v.fed += int64(len(u.Payload))
	v.payload = pushed{u.Payload, u.Last}
	out = v.place(out)
	for {
		n, err := v.reader.Read(v.room[:])
		for p := v.room[:n]; len(p) > 0; out = v.place(out) {
			most := int64(len(p))
			if len(v.waiting) > 0 {
				most = min(most, v.waiting[0].at-v.gone)
			}
			out = append(out, p[:most]...)
			v.gone, p = v.gone+most, p[most:]
		}
		if n == 0 || err != nil {
			return out
		}
	}
}

// place appends what stands where the payload is that went on.
func (v *veil) place(out []byte) []byte {
	for len(v.waiting) > 0 && v.waiting[0].at == v.gone {
		next := v.waiting[0]
		v.waiting = v.waiting[1:]
		out = append(out, next.bytes...)
		if next.ends > 0 {
			v.ends = next.ends
		}
	}
	return out
}

// control is a control frame without the credential.
func (v *veil) control(u websocket.Unit) []byte {
	text := v.redactor.String(string(u.Payload))
	v.said = v.said || text != string(u.Payload)
	return append(append([]byte(nil), u.Bytes[:len(u.Bytes)-len(u.Payload)]...), text...)
}
