package redisstore

import "strings"

// slots is how many parts the keys of a Cluster are cut into.
const slots = 16384

// slotOf is the part that a key is in: the CRC16 (XMODEM) of what stands in its first
// braces, or, if there is nothing, of all of it. See "Key distribution model" in the
// Redis cluster specification.
func slotOf(key string) int {
	if _, after, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(after, "}"); closed && tag != "" {
			key = tag
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc = crc<<8 ^ crc16[byte(crc>>8)^key[i]]
	}
	return int(crc % slots)
}

var crc16 = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
