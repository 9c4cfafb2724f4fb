import java.lang.reflect.Method;
import java.math.BigDecimal;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.TreeMap;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** Ways for a JVM to run out of memory. */
public class Deaths {
    /** What came of it is looked at by nobody, and must not be left out. */
    private static volatile Object sink;

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "heap" -> heap(1 << 20, 8);
            case "near" -> heap(1 << 16, 0);
            case "churn" -> churn();
            case "direct" -> direct();
            case "caught52" -> {
                try {
                    heap(1 << 20, 0);
                } catch (OutOfMemoryError full) {
                    System.exit(52);
                }
            }
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    /** Fills the heap, not so fast that nobody can look. */
    private static void heap(int block, long pause) throws InterruptedException {
        List<byte[]> kept = new ArrayList<>();
        for (;;) {
            kept.add(new byte[block]);
            if (pause > 0) {
                Thread.sleep(pause);
            }
        }
    }

    /** A little of everything, again and again, keeping nothing: it wants its own code and no more memory. */
    private static void churn() throws Exception {
        System.err.println("started " + System.currentTimeMillis());
        long end = System.currentTimeMillis() + 60_000;
        for (long n = 0; System.currentTimeMillis() < end; n++) {
            sink = String.format("%d %s %.3f %tF", n, "x".repeat(5), n / 3.0, new Date());
            sink = Pattern.compile("(a|b)*c\\d+[x-z]{2," + (2 + n % 5) + "}").matcher("ababc123xyz").find();
            sink = IntStream.range(0, 100).boxed().collect(Collectors.groupingBy(i -> i % 7, TreeMap::new, Collectors.counting()));
            sink = ZonedDateTime.now(ZoneId.of("Europe/Paris")).format(DateTimeFormatter.ISO_DATE_TIME);
            sink = new BigDecimal("123456789.123456789").pow((int) (n % 20) + 2).toString();
            sink = MessageDigest.getInstance("SHA-256").digest(new byte[1000]);
            for (Method method : ArrayList.class.getMethods()) {
                sink = method.toGenericString();
            }
            Thread other = new Thread(() -> sink = new int[100]);
            other.start();
            other.join();
            // Collecting and loading classes is what most of the JVM's own code is for.
            if (n % 20 == 0) {
                System.gc();
            }
            URL here = Deaths.class.getProtectionDomain().getCodeSource().getLocation();
            sink = Class.forName("Deaths", true, new URLClassLoader(new URL[] {here}, null));
        }
    }

    private static void direct() throws InterruptedException {
        List<ByteBuffer> kept = new ArrayList<>();
        for (;;) {
            ByteBuffer buffer = ByteBuffer.allocateDirect(1 << 20);
            for (int i = 0; i < buffer.capacity(); i += 4096) {
                buffer.put(i, (byte) 1);
            }
            kept.add(buffer);
            Thread.sleep(8);
        }
    }
}
