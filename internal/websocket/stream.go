package websocket

// Stream follows the bytes of one direction of a connection, from the first frame on.
// Its zero value is of what a server sends. It keeps a few numbers and no byte, and is
// for one goroutine.
type Stream struct {
	FromClient bool // its frames must be masked; those of a server must not be
	// Most is how many bytes of payload a message may have, in all of its fragments
	// together; 0: any number.
	Most int64
	// Frames is in how many fragments a message may come; 0: any number.
	Frames int

	frame   Header // of the data frame under way
	left    int64  // bytes of its payload to come
	message bool   // one is under way
	opcode  Opcode // of it,
	size    int64  // the payload that its frames have declared,
	frames  int    // and how many these are
}

// Unit is a piece of a stream: a whole control frame, or as much of a data frame as there
// is, with its header whole where the piece has the beginning.
type Unit struct {
	Bytes   []byte // all of it, as it was sent
	Payload []byte // what of it is payload, still masked
	Header  Header // of its frame
	Opcode  Opcode // that of its message, also in the frames that continue it
	Offset  int64  // how much of the frame's payload came before
	Begins  bool   // it has the first byte of its frame,
	Ends    bool   // the last,
	Last    bool   // and the last of the message
}

// InFrame reports whether the bytes so far end within a data frame, and InMessage whether
// they end within a message, which is also so between two of its fragments.
func (s *Stream) InFrame() bool { return s.left > 0 }

// InMessage is beside InFrame.
func (s *Stream) InMessage() bool { return s.message }

// Next returns the piece that p begins with. A piece of no bytes is that the header, or
// the control frame, is not all there: at most HeaderMost+ControlMost bytes have to be.
// After a fault there is no telling where the next frame begins.
func (s *Stream) Next(p []byte) (Unit, *Fault) {
	if s.left > 0 && len(p) > 0 {
		return s.payload(Unit{Header: s.frame, Opcode: s.opcode, Offset: s.frame.Length - s.left}, p, 0), nil
	}
	h, f := ParseHeader(p)
	if f != nil || h.Size == 0 {
		return Unit{}, f
	}
	if h.Masked != s.FromClient {
		if s.FromClient {
			return Unit{}, fault(ProtocolError, "a frame of the client is not masked")
		}
		return Unit{}, fault(ProtocolError, "a frame of the server is masked")
	}
	if h.Opcode.Control() {
		whole := h.Size + int(h.Length)
		if len(p) < whole {
			return Unit{}, nil
		}
		return Unit{Bytes: p[:whole], Payload: p[h.Size:whole], Header: h, Opcode: h.Opcode, Begins: true, Ends: true, Last: true}, nil
	}
	if f := s.begin(h); f != nil {
		return Unit{}, f
	}
	return s.payload(Unit{Header: h, Opcode: s.opcode, Begins: true}, p, h.Size), nil
}

// begin has the stream be at the beginning of a data frame's payload.
func (s *Stream) begin(h Header) *Fault {
	switch {
	case h.Opcode == Continuation && !s.message:
		return fault(ProtocolError, "a frame continues a message, and there is none")
	case h.Opcode != Continuation && s.message:
		return fault(ProtocolError, "a message begins within another")
	case h.Opcode != Continuation:
		s.message, s.opcode, s.size, s.frames = true, h.Opcode, 0, 0
	}
	// Neither is over 2^53-1, so their sum is no negative number.
	s.size, s.frames = s.size+h.Length, s.frames+1
	switch {
	case s.size > longest:
		return fault(ProtocolError, "a message declares a length of over 2^53-1")
	case s.Most > 0 && s.size > s.Most, s.Frames > 0 && s.frames > s.Frames:
		return fault(TooBig, "a message is larger than is taken, or in more fragments")
	}
	s.frame, s.left = h, h.Length
	return nil
}

// payload completes a piece of a data frame that begins p, with its header of so many
// bytes.
func (s *Stream) payload(u Unit, p []byte, header int) Unit {
	n := int(min(s.left, int64(len(p)-header)))
	s.left -= int64(n)
	u.Bytes, u.Payload = p[:header+n], p[header:header+n]
	u.Ends = s.left == 0
	u.Last = u.Ends && u.Header.Final
	if u.Last {
		s.message = false
	}
	return u
}
