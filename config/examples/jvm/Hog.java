import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * Uses a known amount of memory of a known kind, then ends well: for trying out what happens when it is too much.
 *
 *   java -Xmx48m Hog.java heap 64      64 MiB of live objects in the heap
 *   java -Xmx48m Hog.java direct 64    64 MiB of direct buffers beside the heap
 *   java -Xmx48m Hog.java ok           next to nothing
 *
 * The amount may also come from HOG_MIB. HOG_HOLD_MS keeps the memory for that long before the end.
 */
public final class Hog {
    private static final int MIB = 1 << 20;

    public static void main(String[] args) throws InterruptedException {
        String mode = args.length > 0 ? args[0] : "ok";
        int mib = Integer.parseInt(args.length > 1 ? args[1] : System.getenv().getOrDefault("HOG_MIB", "0"));
        List<Object> live = new ArrayList<>();
        switch (mode) {
            case "heap" -> fillHeap(live, mib);
            case "direct" -> fillDirect(live, mib);
            case "ok" -> { }
            default -> {
                System.err.println("unknown mode " + mode + "; use heap, direct or ok");
                System.exit(2);
            }
        }
        Thread.sleep(Long.parseLong(System.getenv().getOrDefault("HOG_HOLD_MS", "0")));
        System.out.println(mode + ": held " + live.size() + " MiB and ended well");
    }

    /** Arrays of 64 KiB, so that no collector has to find room for a large one. */
    private static void fillHeap(List<Object> live, int mib) {
        for (int i = 0; i < mib; i++) {
            byte[][] piece = new byte[16][];
            for (int j = 0; j < piece.length; j++) {
                piece[j] = new byte[MIB / 16];
            }
            live.add(piece);
        }
    }

    /** Every page is written: memory that was only promised is not charged. */
    private static void fillDirect(List<Object> live, int mib) throws InterruptedException {
        for (int i = 0; i < mib; i++) {
            ByteBuffer buffer = ByteBuffer.allocateDirect(MIB);
            for (int at = 0; at < MIB; at += 4096) {
                buffer.put(at, (byte) 1);
            }
            live.add(buffer);
            Thread.sleep(2); // slow enough to be watched
        }
    }

    private Hog() { }
}
