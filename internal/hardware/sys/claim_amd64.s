#include "textflag.h"

// func vendor() (b, c, d uint32)
TEXT ·vendor(SB), NOSPLIT, $0-12
	XORL AX, AX
	CPUID
	MOVL BX, b+0(FP)
	MOVL CX, c+4(FP)
	MOVL DX, d+8(FP)
	RET

// func claimByStore(p *byte, n int)
TEXT ·claimByStore(SB), NOSPLIT, $0-16
	MOVQ  p+0(FP), AX
	MOVQ  n+8(FP), BX
	ADDQ  AX, BX            // end
	ANDQ  $-64, AX
	KXORW K1, K1, K1
store:
	VMOVDQU32 X0, K1, (AX)
	ADDQ  $64, AX
	CMPQ  AX, BX
	JB    store
	RET

// func claimByPrefetch(p *byte, n int)
TEXT ·claimByPrefetch(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), BX
	ADDQ AX, BX
	ANDQ $-64, AX
prefetch:
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08 // PREFETCHW (AX)
	ADDQ $64, AX
	CMPQ AX, BX
	JB   prefetch
	RET
