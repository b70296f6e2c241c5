package compared

// property is one promise, and the check that asks a peer for it.
type property struct {
	name string
	// still: no time passes, so that a peer which goes by its own can be asked too,
	// under limits of an hour.
	still bool
	// offers reports whether the library has what it takes; nil: all have.
	offers func(p peer) bool
	check  func(p peer) result
}

func takesN(p peer) bool    { return p.make(every(hour, 1)).takeN != nil }
func refunds(p peer) bool   { return p.make(every(hour, 1)).reserve != nil }
func changes(p peer) bool   { return p.make(every(hour, 1)).change != nil }
func tellsWait(p peer) bool { return p.make(every(hour, 1)).take("k").wait != nil }

// The properties, in the order of the page.
const (
	burst   = "A new bucket admits its burst at once, and no more"
	window  = "No span of time admits more than burst + span / interval"
	pace    = "A caller who keeps to the rate is never refused"
	idle    = "After any rest the bucket holds its burst, all of it and no more"
	stale   = "Calls whose timestamps come out of order get no more"
	steps   = "A clock set back by an hour locks nobody out"
	crowd   = "64 goroutines at one bucket get the burst, exactly"
	decided = "A call is decided, however many come between"

	free       = "A refused call costs nothing"
	waitEnough = "Who waits as told is admitted"
	waitExact  = "Nobody is told to wait longer than it takes"

	costBurst = "A cost of the whole burst is admitted by a full bucket"
	costNever = "A cost over the burst is refused for good, not for a while"
	costHuge  = "A cost times the interval that passes 64 bits is refused"
	costLess  = "A negative cost gives nothing"
	costZero  = "A cost of 0 looks and changes nothing"

	refundSame     = "A token given back at once is there again"
	refundLater    = "So it is when given back a microsecond later"
	refundTwice    = "Given back twice counts once"
	refundChanged  = "Given back under another rate it is a token of that"
	refundRefilled = "What time has refilled is not given back again"

	raisedRate  = "A raised rate holds at once"
	raisedBurst = "A raised burst gives nothing"
	lowered     = "A lowered burst holds at once"
	toAndFro    = "A limit changed to and fro gives nothing"

	rateZero = "A rate of 0 is refused when set, or does what is documented"
	rateLess = "A negative rate is refused when set, or limits"
	rateNaN  = "A rate that is no number is refused when set, or limits"
	burstNil = "A burst of 0 is refused when set, or does what is documented"
	burstBig = "A burst that takes 300 years to come back is refused when set, or works"

	evicted = "A full table forgets nobody who still owes"
)

func properties() []property {
	list := []property{
		{name: burst, still: true, check: checkBurst},
		{name: window, check: checkWindow},
		{name: pace, check: checkPace},
		{name: idle, check: checkIdle},
		{name: stale, check: checkStale},
		{name: steps, check: checkSteps},
		{name: crowd, still: true, check: checkCrowd},
		{name: decided, still: true, check: checkDecided},
		{name: free, check: checkFree},
		{name: waitEnough, offers: tellsWait, check: checkWaitEnough},
		{name: waitExact, offers: tellsWait, check: checkWaitExact},
		{name: costBurst, still: true, offers: takesN, check: checkCostBurst},
		{name: costNever, still: true, offers: takesN, check: checkCostNever},
		{name: costHuge, still: true, offers: takesN, check: checkCostHuge},
		{name: costLess, still: true, offers: takesN, check: checkCostLess},
		{name: costZero, still: true, offers: takesN, check: checkCostZero},
		{name: refundSame, still: true, offers: refunds, check: checkRefundSame},
		{name: refundLater, offers: refunds, check: checkRefundLater},
		{name: refundTwice, still: true, offers: refunds, check: checkRefundTwice},
		{name: refundChanged, still: true, offers: refunds, check: checkRefundChanged},
		{name: refundRefilled, offers: refunds, check: checkRefundRefilled},
		{name: raisedRate, offers: changes, check: checkRaisedRate},
		{name: raisedBurst, still: true, offers: changes, check: checkRaisedBurst},
		{name: lowered, still: true, offers: changes, check: checkLowered},
		{name: toAndFro, still: true, offers: changes, check: checkToAndFro},
	}
	for _, name := range []string{rateZero, rateLess, rateNaN, burstNil, burstBig} {
		list = append(list, property{name: name, still: true, check: func(p peer) result { return checkNonsense(p, name) }})
	}
	return append(list, property{
		name: evicted, still: true, check: checkEvicted,
		offers: func(p peer) bool { return p.bounded != nil },
	})
}

// ask asks p for one property.
func ask(p peer, of property) result {
	defer cleanUp()
	if of.offers != nil && !of.offers(p) {
		return result{verdict: hasNone}
	}
	if own := p.own[of.name]; own != nil {
		return own()
	}
	if p.ownTime && !of.still {
		return result{notAsked, "its time cannot be set"}
	}
	return of.check(p)
}
