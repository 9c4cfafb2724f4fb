// Fills one kind of memory of a Go program, slowly enough to be watched. Argument: which kind.
package main

import (
	"os"
	"syscall"
	"time"
)

const mib = 1 << 20

// What must not be collected.
var kept [][]byte

// Small objects that are all still needed; GOMEMLIMIT is only a target, so only the kernel ends this.
func heap() {
	for {
		for i := 0; i < 16; i++ {
			kept = append(kept, make([]byte, mib/16))
			last := kept[len(kept)-1]
			for at := 0; at < len(last); at += 4096 {
				last[at] = 1
			}
		}
		time.Sleep(8 * time.Millisecond)
	}
}

// Goroutines that have gone deep once and wait: their stacks lie in the memory of the heap.
func goroutines() {
	never := make(chan bool)
	for {
		for i := 0; i < 4; i++ {
			go func() {
				deep(600)
				<-never
			}()
		}
		time.Sleep(3 * time.Millisecond)
	}
}

func deep(left int) byte {
	var room [128]byte
	room[left%128] = byte(left)
	if left == 0 {
		return room[0]
	}
	return deep(left-1) + room[left%7]
}

// Memory that the collector knows nothing of.
func offHeap() {
	for {
		block, err := syscall.Mmap(-1, 0, mib, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			panic(err)
		}
		for at := 0; at < len(block); at += 4096 {
			block[at] = 1
		}
		kept = append(kept, block)
		time.Sleep(8 * time.Millisecond)
	}
}

// What an administrator's ulimit does: the runtime says that it is out of memory before the kernel has to act.
func limited() {
	// What it has reserved by now counts, and is much more than what it uses.
	statm := make([]byte, 256)
	file, err := os.Open("/proc/self/statm")
	if err != nil {
		panic(err)
	}
	n, _ := file.Read(statm)
	var pages uint64
	for _, digit := range statm[:n] {
		if digit < '0' || digit > '9' {
			break
		}
		pages = pages*10 + uint64(digit-'0')
	}
	most := pages*uint64(os.Getpagesize()) + 64*mib
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
		panic(err)
	}
	heap()
}

func main() {
	switch os.Args[1] {
	case "heap":
		heap()
	case "goroutines":
		goroutines()
	case "off-heap":
		offHeap()
	case "limited":
		limited()
	default:
		panic(os.Args[1])
	}
}
