// Package websocket is the arithmetic of WebSocket (RFC 6455): what a frame's header
// says, where frames and messages begin and end in the bytes of a connection, what a
// close says, and whether an upgrade was answered. It reads and writes nothing, keeps no
// payload and knows no time, so whoever relays a connection passes on the bytes that came,
// untouched, and looks at them with this.
//
//	s := websocket.Stream{FromClient: true, Most: 1 << 20}
//	for {
//		unit, fault := s.Next(bytes)     // of what was read and not looked at yet
//		if fault != nil { ... }          // tells the code to close with
//		if len(unit.Bytes) == 0 { ... }  // more has to be read first
//		bytes = bytes[len(unit.Bytes):]
//	}
//
// Extensions are not understood, so whoever uses it MUST NOT let one be negotiated: a
// reserved bit that is set is a fault.
package websocket

import (
	"encoding/binary"
	"fmt"
)

// Opcode is what a frame is (RFC 6455, section 5.2).
type Opcode byte

// The opcodes there are. All others are reserved.
const (
	Continuation Opcode = 0
	Text         Opcode = 1
	Binary       Opcode = 2
	Closing      Opcode = 8
	Ping         Opcode = 9
	Pong         Opcode = 10
)

// Control reports whether frames of that opcode are about the connection, and may stand
// between those of a message.
func (o Opcode) Control() bool { return o >= Closing }

func (o Opcode) valid() bool { return o <= Binary || o >= Closing && o <= Pong }

// HeaderMost is the most bytes that a header has, and ControlMost the most that the
// payload of a control frame has.
const (
	HeaderMost  = 14
	ControlMost = 125
)

// longest is the greatest length that a frame may declare: the greatest integer that
// every program can count in. One of more is nobody's message. It lies far enough below
// what an int64 holds that sums of what was declared do not overflow (CVE-2020-27813).
const longest = 1<<53 - 1

// Header is that of a frame.
type Header struct {
	Final  bool // the last of its message; of a control frame always
	Opcode Opcode
	Masked bool
	Mask   [4]byte
	Length int64 // of the payload
	Size   int   // of the header itself
}

// ParseHeader reads the header at the front of p; a Size of 0 is that p does not hold
// all of it yet. What is wrong with it is said as soon as the bytes are there that tell.
func ParseHeader(p []byte) (Header, *Fault) {
	if len(p) == 0 {
		return Header{}, nil
	}
	h := Header{Final: p[0]&0x80 != 0, Opcode: Opcode(p[0] & 0x0f), Size: 2}
	switch {
	case p[0]&0x70 != 0:
		return Header{}, fault(ProtocolError, "a reserved bit is set, and no extension was negotiated")
	case !h.Opcode.valid():
		return Header{}, fault(ProtocolError, fmt.Sprintf("opcode %d is reserved", h.Opcode))
	case h.Opcode.Control() && !h.Final:
		return Header{}, fault(ProtocolError, "a control frame is fragmented")
	case len(p) == 1:
		return Header{}, nil
	}
	h.Masked, h.Length = p[1]&0x80 != 0, int64(p[1]&0x7f)
	if h.Opcode.Control() && h.Length > ControlMost {
		return Header{}, fault(ProtocolError, "a control frame has more than 125 bytes")
	}
	long := 0
	switch h.Length {
	case 126:
		long = 2
	case 127:
		long = 8
	}
	h.Size += long
	if len(p) < h.Size {
		return Header{}, nil
	}
	switch long {
	case 2:
		h.Length = int64(binary.BigEndian.Uint16(p[2:]))
	case 8:
		declared := binary.BigEndian.Uint64(p[2:])
		if declared > longest {
			return Header{}, fault(ProtocolError, "a frame declares a length of over 2^53-1")
		}
		h.Length = int64(declared)
	}
	if long == 2 && h.Length < 126 || long == 8 && h.Length < 1<<16 {
		return Header{}, fault(ProtocolError, "a length is not written in as few bytes as it takes")
	}
	if h.Masked {
		if len(p) < h.Size+4 {
			return Header{}, nil
		}
		copy(h.Mask[:], p[h.Size:])
		h.Size += 4
	}
	return h, nil
}

// AppendFrame appends a whole frame, a message or a control frame by itself. A mask of
// nil is none, as of a server; a client MUST mask, with bytes that nobody can foretell.
func AppendFrame(b []byte, o Opcode, mask *[4]byte, payload []byte) []byte {
	bit := byte(0)
	if mask != nil {
		bit = 0x80
	}
	b = append(b, 0x80|byte(o))
	switch n := len(payload); {
	case n < 126:
		b = append(b, bit|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, bit|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, bit|127), uint64(n))
	}
	if mask == nil {
		return append(b, payload...)
	}
	b = append(b, mask[:]...)
	return AppendUnmasked(b, payload, *mask, 0)
}

// AppendUnmasked appends a piece of a frame's payload, of which offset bytes came before,
// unmasked; or masked, which is the same.
func AppendUnmasked(b, payload []byte, mask [4]byte, offset int64) []byte {
	at := len(b)
	b = append(b, payload...)
	fresh := b[at:]
	var turned [4]byte
	for i := range turned {
		turned[i] = mask[(offset+int64(i))&3]
	}
	four := binary.NativeEndian.Uint32(turned[:])
	eight := uint64(four)<<32 | uint64(four)
	for len(fresh) >= 8 {
		binary.NativeEndian.PutUint64(fresh, binary.NativeEndian.Uint64(fresh)^eight)
		fresh = fresh[8:]
	}
	for i := range fresh {
		fresh[i] ^= turned[i&3]
	}
	return b
}
